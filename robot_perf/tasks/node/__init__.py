"""What a ROS node needs beside its loop: the keeper and its figures."""
