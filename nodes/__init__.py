"""ROS 2 nodes: thin edges around the library. Each module guards the rclpy import."""
